package nccl_test

import _ "ampc/internal/largeheap"
