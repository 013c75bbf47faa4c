package passes

import _ "ampc/internal/largeheap"
