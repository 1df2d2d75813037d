package lb

import (
	"fmt"
	"strconv"
)

// word is an enumeration of the contract: written as a word, accepted as its number too.
type word interface {
	~uint8
	fmt.Stringer
}

// parseWord finds the value whose word or number is s. Numbers are taken in their shortest form only, so that
// "01" and "+1" stay the typing errors they are.
func parseWord[T word](field, s string, all []T) (T, error) {
	for _, v := range all {
		if s == v.String() || s == strconv.Itoa(int(v)) {
			return v, nil
		}
	}
	return 0, NewFieldError(field, s, "is not known", list(words(all)))
}

// wordError says why v is not taken: unknown, or not available yet. It returns nil for one of available.
func wordError[T word](field string, v T, all, available []T) error {
	for _, a := range available {
		if v == a {
			return nil
		}
	}
	allowed := list(words(available))
	for _, a := range all {
		if v == a {
			return NotAvailable(field, v.String(), allowed)
		}
	}
	return NewFieldError(field, v.String(), "is not known", allowed)
}

func words[T word](all []T) []string {
	w := make([]string, len(all))
	for i, v := range all {
		w[i] = v.String()
	}
	return w
}
