package scatter_test

import (
	"testing"

	"github.com/scaffe/scaffe/scatter"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = schedule.Algorithm{Bcast: scatter.Bcast}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestGolden(t *testing.T) { checktest.Golden(t, "testdata", family) }
