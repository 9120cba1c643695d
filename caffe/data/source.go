package data

// Source is a data set of samples in a fixed order. It is used by one
// goroutine at a time. OpenLMDB and OpenList make one.
type Source interface {
	// Len returns the number of samples, at least 1.
	Len() int64
	// Read decodes sample i, in [0, Len), of the given pass over the data set
	// into s. s borrows its values from the source until the next Read. Reading
	// in ascending order is fastest.
	Read(pass, i int64, s *Sample) error
	// Where names the sample last asked for, by its file and key or line.
	Where() string
	// Fork returns another source of the same data set, for another goroutine.
	// Each must be closed, in any order.
	Fork() (Source, error)
	// Close releases the source's resources.
	Close() error
}
