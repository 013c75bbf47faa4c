package mutants

import _ "ampc/internal/largeheap"
