package ring_test

import (
	"testing"

	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = schedule.Algorithm{Allreduce: ring.Allreduce}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestGolden(t *testing.T) { checktest.Golden(t, "testdata", family) }
