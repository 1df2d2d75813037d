package v1

import (
	"encoding/json"
	"errors"
	"strconv"
)

// Choice is a value that the wire writes as a number and people write as a word: 2 or "fullnat". It holds the text of
// either, without quotes; empty is the default, which is written as 0. It is encoded as a number where it is one.
type Choice string

var errChoice = errors.New("neither a number nor a word")

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

// UnmarshalJSON takes a number or a string.
func (c *Choice) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*c = Choice(s)
	case 'n': // null leaves the default
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		*c = Choice(data)
	default:
		return errChoice
	}
	return nil
}
