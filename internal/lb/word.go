package lb

import (
	"fmt"
	"slices"
	"strconv"
)

// enum is an enumeration: people write its words. Its numbers are those of the contract, where that
// has it.
type enum interface {
	~uint8
	fmt.Stringer
}

// choice is one value of an enumeration.
type choice[T enum] struct {
	value T
	word  string
	help  string // what it does, for people who choose
	// instead is what to do where the contract has it and this build does not; "": it is there
	instead string
}

// Choice is one value of a field of words, as help and manual show it.
type Choice struct {
	Word      string
	Number    int
	Help      string
	Available bool // false: the contract has it, and this version refuses it
}

// wordOf is the word of v, or kind(N) of a number that is none.
func wordOf[T enum](kind string, v T, all []choice[T]) string {
	for _, c := range all {
		if c.value == v {
			return c.word
		}
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// parseWord finds the value whose word is s; "" is the value 0, if it has a word.
func parseWord[T enum](field, s string, all []choice[T]) (T, error) {
	for _, c := range all {
		if s == c.word || s == "" && c.value == 0 {
			return c.value, nil
		}
	}
	known := available(all)
	return 0, NewFieldError(field, s, "is not known"+DidYouMean(s, known), list(known))
}

// parseWordOrNumber takes the number too, in its shortest form only: "01" and "+1" stay the typing
// errors they are.
func parseWordOrNumber[T enum](field, s string, all []choice[T]) (T, error) {
	for _, c := range all {
		if s == strconv.Itoa(int(c.value)) {
			return c.value, nil
		}
	}
	return parseWord(field, s, all)
}

// wordError says why v is not taken: unknown, or not built. It returns nil for one that is there.
func wordError[T enum](field string, v T, all []choice[T]) error {
	i := slices.IndexFunc(all, func(c choice[T]) bool { return c.value == v })
	if i >= 0 && all[i].instead == "" {
		return nil
	}
	allowed := list(available(all))
	if i >= 0 {
		return NotBuilt(field, all[i].word, all[i].instead, allowed)
	}
	return NewFieldError(field, v.String(), "is not known", allowed)
}

// available are the words that this build has.
func available[T enum](all []choice[T]) (words []string) {
	for _, c := range all {
		if c.instead == "" {
			words = append(words, c.word)
		}
	}
	return words
}
