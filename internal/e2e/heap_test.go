package e2e_test

import _ "ampc/internal/largeheap"
