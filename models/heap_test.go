package models_test

import _ "ampc/internal/largeheap"
