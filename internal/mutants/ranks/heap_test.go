package ranks

import _ "ampc/internal/largeheap"
