package rest

import (
	"reflect"
	"strings"
	"testing"
)

// TestKnownOnly checks that removed properties are replaced by blanks, and that the rest is JSON
// with the same meaning.
func TestKnownOnly(t *testing.T) {
	t.Parallel()
	type inner struct {
		B int `json:"b"`
	}
	type object struct {
		A    int     `json:"a"`
		List []inner `json:"list"`
	}
	for body, want := range map[string]string{
		`{"a":1}`:                               `{"a":1}`,
		`{"x":1}`:                               `{}`,
		`{"x":1,"a":1}`:                         `{"a":1}`,
		`{"a":1,"x":1}`:                         `{"a":1}`,
		`{"x":1,"y":{"a":2},"a":1,"z":[1,2]}`:   `{"a":1}`,
		`{"x":1,"y":2,"a":1,"z":3,"list":null}`: `{"a":1,"list":null}`,
		`{"list":[{"x":1,"b":2},{"b":3,"y":4},{"x":",{"}]}`: `{"list":[{"b":2},{"b":3},{}]}`,
		"{ \"x\" : 1 ,\n \"A\" : 1 , \"\\u0078\" : 2 }":     "{\n\"A\":1}",
	} {
		known, _ := knownOnly([]byte(body), reflect.TypeFor[object]())
		if got := strings.ReplaceAll(string(known), " ", ""); got != want || len(known) != len(body) {
			t.Errorf("%s: %s, want %s", body, known, want)
		}
	}
}
