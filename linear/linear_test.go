package linear_test

import (
	"testing"

	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = schedule.Algorithm{Reduce: linear.Reduce, Bcast: linear.Bcast, Allgather: linear.Allgather, Gather: linear.Gather, Scatter: linear.Scatter, Alltoall: linear.Alltoall}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestGolden(t *testing.T) { checktest.Golden(t, "testdata", family) }
