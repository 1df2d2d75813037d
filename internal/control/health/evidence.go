package health

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// longest bounds the characters kept of a result.
const longest = 200

// clause makes text of an endpoint fit to be shown: one short line of printable characters.
func clause(what string) string {
	if !strings.ContainsFunc(what, notShown) && len(what) <= longest {
		return what
	}
	var b strings.Builder
	n := 0
	for _, r := range what {
		if n++; n > longest {
			b.WriteString("...")
			break
		}
		if notShown(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func notShown(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
