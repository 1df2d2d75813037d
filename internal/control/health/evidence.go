package health

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxResult bounds the number of characters of a result.
const maxResult = 200

// sanitize makes text from an endpoint safe to display: one short line of printable characters.
func sanitize(text string) string {
	if !strings.ContainsFunc(text, isUnprintable) && len(text) <= maxResult {
		return text
	}
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > maxResult {
			b.WriteString("...")
			break
		}
		if isUnprintable(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isUnprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
