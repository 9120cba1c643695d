package direct_test

import (
	"testing"

	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = schedule.Algorithm{Reduce: direct.Reduce, Bcast: direct.Bcast, Allreduce: direct.Allreduce, Allgather: direct.Allgather, ReduceScatter: direct.ReduceScatter, Alltoall: direct.Alltoall}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestGolden(t *testing.T) { checktest.Golden(t, "testdata", family) }
