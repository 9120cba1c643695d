package coordinator

import (
	"fmt"
	"slices"
)

// Pull is how parameters come back from their servers.
type Pull uint8

const (
	// PullBroadcast, the zero value: a server sends what it has updated to all at once (Poseidon, section 4.1; P3's immediate
	// broadcast, section 4.2).
	PullBroadcast Pull = iota
	// PullRequest is KVStore's way (P3, section 4.2): a server gives notice of what it has updated, and answers whoever asks.
	PullRequest
)

var pulls = []string{"broadcast", "request"}

// Pulls lists what ParsePull reads.
func Pulls() []string { return slices.Clone(pulls) }

// ParsePull is the inverse of String.
func ParsePull(text string) (Pull, error) {
	if i := slices.Index(pulls, text); i >= 0 {
		return Pull(i), nil
	}
	return 0, fmt.Errorf("unknown pull %q: want %s", text, or(pulls))
}

// String returns "broadcast" or "request".
func (p Pull) String() string {
	if int(p) < len(pulls) {
		return pulls[p]
	}
	return fmt.Sprintf("pull(%d)", uint8(p))
}
