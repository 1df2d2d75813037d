package session

import (
	"fmt"
	"strings"

	v1 "loxilb/api/v1"
)

// Reasons is why clients were refused, and how often.
func Reasons(list []v1.RefusedCount) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = fmt.Sprintf("%s %d", OneLine(one.Reason), one.Count)
	}
	return strings.Join(words, ", ")
}
