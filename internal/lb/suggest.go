package lb

import "strings"

// Suggest returns the word that is most like text, or "" if none is alike: at most one letter in
// three may differ.
func Suggest(text string, words []string) string {
	best, least := "", max(1, len(text)/3)+1
	text = strings.ToLower(text)
	for _, w := range words {
		lower := strings.ToLower(w)
		d := distance(text, lower)
		if len(text) > 2 && strings.HasPrefix(lower, text) {
			d = min(d, 1)
		}
		if d < least {
			best, least = w, d
		}
	}
	return best
}

// DidYouMean returns a suggestion to append to an error, "" if no word is similar.
func DidYouMean(text string, words []string) string {
	if w := Suggest(text, words); w != "" && text != "" {
		return "; did you mean " + w + "?"
	}
	return ""
}

// distance returns how many letters have to be inserted, deleted, replaced or swapped with the next
// one.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 { // a text this long is no typing error
		return 1000
	}
	row, last := make([]int, len(b)+1), make([]int, len(b)+1)
	var before []int
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
