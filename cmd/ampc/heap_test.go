package main

import _ "ampc/internal/largeheap"
