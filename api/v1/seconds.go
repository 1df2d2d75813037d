package v1

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"time"
)

// Seconds is a duration that the existing loxilb encodes as a number of seconds. Requests may also
// have a unit, as in "60s" or "1m"; answers have the number.
type Seconds int

// UnmarshalJSON takes a number, or a string with a duration of whole seconds.
func (s *Seconds) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		return json.Unmarshal(data, (*int)(s))
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if n, err := strconv.Atoi(text); err == nil {
		*s = Seconds(n)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d%time.Second != 0 || d > math.MaxInt32*time.Second {
		return &json.UnmarshalTypeError{Value: strconv.Quote(text), Type: reflect.TypeFor[Seconds]()} // the decoder adds the field
	}
	*s = Seconds(d / time.Second)
	return nil
}

func (s Seconds) String() string { return strconv.Itoa(int(s)) }

// Duration is a time with its unit, such as "500ms". Requests may also write a number of seconds.
type Duration string

// UnmarshalJSON accepts a string or a number. Anything else is kept as text, so the server's
// error can name the field.
func (d *Duration) UnmarshalJSON(data []byte) error { return (*Choice)(d).UnmarshalJSON(data) }
