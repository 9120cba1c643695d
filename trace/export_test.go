package trace

// SetPageItems sets how many items a page shows at most, and returns what it was.
func SetPageItems(n int) int {
	was := pageItems
	pageItems = n
	return was
}
