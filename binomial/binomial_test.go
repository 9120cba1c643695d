package binomial_test

import (
	"testing"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = schedule.Algorithm{Reduce: binomial.Reduce, Bcast: binomial.Bcast, Gather: binomial.Gather, Scatter: binomial.Scatter}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestGolden(t *testing.T) { checktest.Golden(t, "testdata", family) }
