package gpu_test

import _ "ampc/internal/largeheap"
