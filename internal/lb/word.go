package lb

import (
	"fmt"
	"slices"
	"strconv"
)

// enum is an enumeration: people write its words. Its numbers are the contract's, where that has
// it.
type enum interface {
	~uint8
	fmt.Stringer
}

// choice is one value of an enumeration.
type choice[T enum] struct {
	value T
	word  string
	help  string // its effect, for people who choose
	// instead is the alternative to a value of the contract that this build does not support; "":
	// supported
	instead string
}

// Choice is one value of a field of words, as help and manual show it.
type Choice struct {
	Word      string
	Number    int
	Help      string
	Available bool // false: the contract has it, and this version refuses it
}

// wordOf returns the word of v, or kind(N) of a number that is none.
func wordOf[T enum](kind string, v T, all []choice[T]) string {
	for _, c := range all {
		if c.value == v {
			return c.word
		}
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// parseWord finds the value whose word is s; "" means the value 0, if it has a word.
func parseWord[T enum](field, s string, all []choice[T]) (T, error) {
	for _, c := range all {
		if s == c.word || s == "" && c.value == 0 {
			return c.value, nil
		}
	}
	known := available(all)
	return 0, NewFieldError(field, s, "is not known"+DidYouMean(s, known), list(known))
}

// parseWordOrNumber also parses the number, in its shortest form only: "01" and "+1" are typing
// errors.
func parseWordOrNumber[T enum](field, s string, all []choice[T]) (T, error) {
	for _, c := range all {
		if s == strconv.Itoa(int(c.value)) {
			return c.value, nil
		}
	}
	return parseWord(field, s, all)
}

// wordError returns why v is refused: unknown, or not supported. It returns nil for a supported
// value.
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

// available returns the words that this build supports.
func available[T enum](all []choice[T]) (words []string) {
	for _, c := range all {
		if c.instead == "" {
			words = append(words, c.word)
		}
	}
	return words
}
