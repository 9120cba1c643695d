package selection

// Apart is apart, for tests of this package alone.
var Apart = apart
