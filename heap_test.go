package ampc_test

import _ "ampc/internal/largeheap"
