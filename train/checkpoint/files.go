package checkpoint

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/mem"
)

// valueSize is the bytes of a value.
const valueSize = 4

// piece is how many bytes are written, read and digested at a time.
const piece = 1 << 20

// Suffix is how the name of a manifest ends.
const Suffix = ".manifest"

// Stem returns how the names of a set's files begin.
func Stem(dir string, iter int) string { return filepath.Join(dir, fmt.Sprintf("iter_%d", iter)) }

// ManifestPath returns the name of a set's manifest.
func ManifestPath(dir string, iter int) string { return Stem(dir, iter) + Suffix }

// ShardPath returns the name of a rank's shard.
func ShardPath(dir string, iter, rank int) string {
	return fmt.Sprintf("%s.rank_%d.shard", Stem(dir, iter), rank)
}

// ProbePath returns the name of a file by which ranks see that they share a directory. Clean
// removes it, should it be left.
func ProbePath(dir string, iter int, token uint64) string {
	return filepath.Join(dir, fmt.Sprintf(".iter_%d%s.%016x.tmp", iter, Suffix, token))
}

// ours matches the files of a set, and what a killed process leaves of them; its group is
// the iteration.
var ours = regexp.MustCompile(`^\.?iter_(\d+)\.(manifest|schemes|rank_\d+\.shard)(\.[0-9a-f]{16}\.tmp)?$`)

// WriteShard writes values to a file, atomically, through fs (nil is the operating
// system's). A rank that holds none writes no file.
func WriteShard(fs atomicfile.FS, path string, values []float32) (Digest, error) {
	h := sha256.New()
	if len(values) == 0 {
		return Digest(h.Sum(nil)), nil
	}
	err := atomicfile.Stream(fs, path, func(w io.Writer) error {
		for part := range slices.Chunk(mem.Bytes(mem.Of(values)), piece) {
			h.Write(part)
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
	return Digest(h.Sum(nil)), err
}

// Write writes the manifest, which makes the set whole.
func (m *Manifest) Write(fs atomicfile.FS, dir string) error {
	return atomicfile.Write(fs, ManifestPath(dir, m.Iter), m.Text())
}

// Sets returns the iterations of the whole sets of a directory, ascending.
func Sets(dir string) ([]int, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var iters []int
	for _, f := range files {
		if found := ours.FindStringSubmatch(f.Name()); found != nil && f.Name() == "iter_"+found[1]+Suffix {
			iter, err := strconv.Atoi(found[1])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Join(dir, f.Name()), err)
			}
			iters = append(iters, iter)
		}
	}
	slices.Sort(iters)
	return iters, nil
}

// Clean removes the sets of a directory but for those of the iterations kept, and what
// killed processes have left there. Nobody may be writing to the directory. Manifests go
// first, so that no set is whole that misses a shard.
func Clean(fs atomicfile.FS, dir string, kept ...int) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var gone []string
	for _, f := range files {
		found := ours.FindStringSubmatch(f.Name())
		if found == nil {
			continue
		}
		if iter, err := strconv.Atoi(found[1]); err == nil && slices.Contains(kept, iter) && found[3] == "" {
			continue
		}
		gone = append(gone, f.Name())
	}
	slices.SortStableFunc(gone, func(a, b string) int { return manifestsFirst(a) - manifestsFirst(b) })
	for _, name := range gone {
		err = errors.Join(err, atomicfile.Remove(fs, filepath.Join(dir, name)))
	}
	return err
}

func manifestsFirst(name string) int {
	if strings.HasSuffix(name, Suffix) {
		return 0
	}
	return 1
}

// Is reports whether path names a checkpoint rather than one of Caffe's snapshots: a
// directory, or a manifest.
func Is(path string) bool {
	if strings.HasSuffix(path, Suffix) {
		return true
	}
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// Find returns the manifest that path names: path itself, or that of the newest whole set
// in the directory path.
func Find(path string) (string, error) {
	if strings.HasSuffix(path, Suffix) {
		return path, nil
	}
	iters, err := Sets(path)
	if err != nil {
		return "", err
	}
	if len(iters) == 0 {
		return "", fmt.Errorf("%s holds no checkpoint: there is no iter_N%s, without which shards are no whole set", path, Suffix)
	}
	return ManifestPath(path, iters[len(iters)-1]), nil
}

// Load reads the set of a manifest into state: the packed parameters, then each history.
// The set must be of such a layout. What it fails with says what is wrong with which file; the
// state may have changed by then. Of residuals it checks the digest: ReadResiduals reads them.
func Load(path string, l Layout, state [][]float32) (*Manifest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := Parse(text)
	if err == nil {
		err = m.of(l)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for rank := range m.Shards {
		if m.Shards[rank].Len(m.Histories) == 0 {
			continue
		}
		if err := m.load(ShardPath(filepath.Dir(path), m.Iter, rank), &m.Shards[rank], state); err != nil {
			return nil, fmt.Errorf("checkpoint of iteration %d: %w", m.Iter, err)
		}
	}
	return m, nil
}

// load reads one shard.
func (m *Manifest) load(path string, s *Shard, state [][]float32) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if want := int64(s.Len(m.Histories)) * valueSize; fi.Size() != want {
		return fmt.Errorf("%s has %d bytes, where its manifest says %d: it is not whole", path, fi.Size(), want)
	}
	h := sha256.New()
	for _, values := range state[:1+m.Histories] {
		for _, r := range s.Ranges {
			for part := range slices.Chunk(mem.Bytes(mem.Of(values[r.Off:r.End()])), piece) {
				if _, err := io.ReadFull(f, part); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				h.Write(part)
			}
		}
	}
	if _, err := io.Copy(h, f); err != nil { // residuals
		return fmt.Errorf("%s: %w", path, err)
	}
	if Digest(h.Sum(nil)) != s.Digest {
		return fmt.Errorf("%s has been changed: its digest is not that of its manifest", path)
	}
	return nil
}

// ReadResiduals reads residuals that a rank of a set in dir has written, from the given value on:
// those of its gradients, matrix by matrix, then those of sums, stripe by stripe, then what is held back, parameter by parameter.
func (m *Manifest) ReadResiduals(dir string, rank, from int, into []float32) error {
	path := ShardPath(dir, m.Iter, rank)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ReadAt(mem.Bytes(mem.Of(into)), int64(m.Shards[rank].state(m.Histories)+from)*valueSize); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
