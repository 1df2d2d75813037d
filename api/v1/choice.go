package v1

import (
	"encoding/json"
	"strconv"
)

// Choice is a value with a number on the wire and a word for people: 2 or "fullnat". It holds the
// text of either, without quotes. Empty is the default, encoded as 0. A number is encoded as a
// number.
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

// UnmarshalJSON accepts a string or a number. Anything else is kept as text, so the server's
// error can name the field, which is unknown here. null leaves the default.
func (c *Choice) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, (*string)(c))
	}
	if string(data) != "null" {
		*c = Choice(data)
	}
	return nil
}
