package interp

import _ "ampc/internal/largeheap"
