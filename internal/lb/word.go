package lb

import (
	"fmt"
	"slices"
	"strconv"
)

// enum is an enumeration: people write its words. Its numbers are those of the contract, where that has it.
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

// parseWord finds the value whose word is s.
func parseWord[T enum](field, s string, all []choice[T]) (T, error) {
	for _, c := range all {
		if s == c.word {
			return c.value, nil
		}
	}
	return 0, NewFieldError(field, s, "is not known", list(words(all)))
}

// parseWordOrNumber takes the number too, in its shortest form only: "01" and "+1" stay the typing errors they are.
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
	allowed := list(words(slices.DeleteFunc(slices.Clone(all), func(c choice[T]) bool { return c.instead != "" })))
	if i >= 0 {
		return NotBuilt(field, all[i].word, all[i].instead, allowed)
	}
	return NewFieldError(field, v.String(), "is not known", allowed)
}

func words[T enum](all []choice[T]) []string {
	w := make([]string, len(all))
	for i, c := range all {
		w[i] = c.word
	}
	return w
}
