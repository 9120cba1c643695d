package data

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asReaders, where it is set, is what this program does instead of testing
// when the environment says that it is one of a test's reader processes.
var asReaders func() (status int)

// TestMain fails where a loader's goroutine outlives the tests.
func TestMain(m *testing.M) {
	if asReaders != nil && os.Getenv(envReaders) != "" {
		os.Exit(asReaders())
	}
	goleak.VerifyTestMain(m)
}

// envReaders is the environment variable that says so.
const envReaders = "SCAFFE_TEST_READERS"
