package ampc_test

import (
	_ "ampc/internal/largeheap"
	"ampc/internal/trial"
)

var (
	small     = trial.Small
	points    = trial.Points
	adam      = trial.Adam
	train     = trial.Train
	run       = trial.Run
	metrics   = trial.Metrics
	wantError = trial.WantError
	same      = trial.SameBits

	followsF32 = trial.FollowsF32
)
