package v1

import (
	"encoding/json"
	"strconv"
)

// Choice is a value that the wire writes as a number and people write as a word: 2 or "fullnat". It
// holds the text of either, without quotes; empty is the default, which is written as 0. It is
// encoded as a number where it is one.
type Choice string

// MarshalJSON writes a number where the choice is one, else a string.
func (c Choice) MarshalJSON() ([]byte, error) {
	if c == "" {
		return []byte("0"), nil
	}
	if n, err := strconv.ParseUint(string(c), 10, 8); err == nil {
		return strconv.AppendUint(nil, n, 10), nil
	}
	return json.Marshal(string(c))
}

// UnmarshalJSON takes a number or a string. Anything else is kept as it is written, so that the
// server refuses it with the name of its field, which is not known here; null leaves the default.
func (c *Choice) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, (*string)(c))
	}
	if string(data) != "null" {
		*c = Choice(data)
	}
	return nil
}
