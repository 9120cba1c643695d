package data

import (
	"errors"
	"fmt"
	"os"
)

// CheckTarget reports why an LMDB must not be written to path: it exists and
// force is not set, or it is something other than an LMDB.
func CheckTarget(path string, force bool) error {
	if path == "" {
		return errors.New("missing path of the LMDB")
	}
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !force {
		return fmt.Errorf("%s exists: remove it, choose another path, or use force to replace it", path)
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not an LMDB directory: remove it by hand", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if n := e.Name(); n != "data.mdb" && n != "lock.mdb" {
			return fmt.Errorf("%s also holds %s, so it is not replaced: remove it by hand", path, n)
		}
	}
	return nil
}
