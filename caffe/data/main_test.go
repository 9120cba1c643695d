package data

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails where a loader's goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
