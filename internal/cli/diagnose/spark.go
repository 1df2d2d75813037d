package diagnose

import (
	"fmt"
	"strings"
)

// glyphs are the characters that a terminal can show.
type glyphs struct {
	bars  []rune // from the lowest to the highest
	cut   string // marks an omission
	up    string
	down  string
	enter string
}

func utf8Glyphs() glyphs {
	return glyphs{bars: []rune(" ▁▂▃▄▅▆▇█"), cut: "…", up: "↑", down: "↓", enter: "⏎"}
}

func asciiGlyphs() glyphs {
	return glyphs{bars: []rune(" ._-=+*#@"), cut: ".", up: "up", down: "dn", enter: "enter"}
}

// sparkline draws the last values as bars, the largest as high as a line is.
func (g *glyphs) sparkline(values []float32, width int) string {
	values = values[max(0, len(values)-width):]
	var most float32
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", max(0, width-len(values))))
	for _, v := range values {
		bar := 0
		if v > 0 {
			bar = 1 + int(v/most*float32(len(g.bars)-2)+0.5)
		}
		b.WriteRune(g.bars[min(bar, len(g.bars)-1)])
	}
	return b.String()
}

// short returns a number in five places at most: 0.3, 42, 1.2k, 345k, 6.7M.
func short(n float64) string {
	if n > 0 && n < 9.95 && n != float64(int(n)) {
		return fmt.Sprintf("%.1f", max(n, 0.1))
	}
	if n < 9999.5 {
		return fmt.Sprintf("%.0f", n)
	}
	for _, unit := range "kMGTPE" {
		n /= 1000
		switch {
		case n < 9.95:
			return fmt.Sprintf("%.1f%c", n, unit)
		case n < 999.5:
			return fmt.Sprintf("%.0f%c", n, unit)
		}
	}
	return fmt.Sprintf("%.0fE", n)
}
