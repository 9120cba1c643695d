package draw

import "fmt"

type rgb [3]float64

// ramp is the colors of the chunks, first to last: even steps of lightness
// and of hue from blue to yellow, so that neighbors differ for color-blind
// people and in print too.
var ramp = []rgb{
	{0x48, 0x46, 0xc6},
	{0x73, 0x3b, 0xc0},
	{0xa0, 0x34, 0xa8},
	{0xc4, 0x3c, 0x7c},
	{0xe0, 0x56, 0x5c},
	{0xf0, 0x79, 0x3d},
	{0xf5, 0x9e, 0x22},
	{0xf0, 0xc2, 0x1b},
}

// color returns chunk i's of n, and the color of text upon it.
func color(i, n int) (fill, text string) {
	at := 0.0
	if n > 1 {
		at = float64(i) / float64(n-1) * float64(len(ramp)-1)
	}
	k := min(int(at), len(ramp)-2)
	var c rgb
	for j := range c {
		c[j] = ramp[k][j] + (at-float64(k))*(ramp[k+1][j]-ramp[k][j])
	}
	text = "#fff"
	if 0.299*c[0]+0.587*c[1]+0.114*c[2] > 140 {
		text = "#1b1b1f"
	}
	return fmt.Sprintf("#%02x%02x%02x", int(c[0]+0.5), int(c[1]+0.5), int(c[2]+0.5)), text
}
