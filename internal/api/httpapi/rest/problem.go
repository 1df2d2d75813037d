package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// A Problem is the reason for refusing a request. Its body is the answer.
type Problem struct {
	Body  v1.Error
	Cause error // nil: body is complete
	// known returns a body without its unknown properties, if one of them is refused.
	known func([]byte) ([]byte, []string)
}

func (p *Problem) Error() string { return p.Body.Message }

func (p *Problem) Unwrap() error { return p.Cause }

// Refuse returns a problem with a message.
func Refuse(code int, format string, args ...any) *Problem {
	s := fmt.Sprintf(format, args...)
	return &Problem{Body: v1.Error{Code: code, Message: s, Result: s}}
}

// SetMessage replaces the message.
func (p *Problem) SetMessage(s string) { p.Body.Message, p.Body.Result = s, s }

// RefuseField returns a problem about a value. reason is a predicate: "is zero".
func RefuseField(code int, field, value, reason, allowed string) *Problem {
	return RefuseError(code, lb.NewFieldError(field, value, reason, allowed))
}

// RefuseError converts an error to a problem. For a FieldError it sets the field, value and reason,
// and uses 501 if this build lacks the feature of that value.
func RefuseError(code int, err error) *Problem {
	p := &Problem{Body: v1.Error{Code: code, Message: err.Error(), Result: err.Error()}}
	var field *lb.FieldError
	if !errors.As(err, &field) {
		return p
	}
	if field.Unsupported {
		p.Body.Code = http.StatusNotImplemented
	}
	p.Body.Field, p.Body.Value, p.Body.Reason, p.Body.Allowed = field.Field, field.Value, field.Reason, field.Allowed
	return p
}

// Invalid refuses a value of the request. reason is a predicate: "is zero".
func Invalid(field, value, reason, allowed string) *Problem {
	return RefuseField(http.StatusBadRequest, field, value, reason, allowed)
}

// Missing refuses a value that names a missing object.
func Missing(field, value, allowed string) *Problem {
	return RefuseField(http.StatusNotFound, field, value, "does not exist", allowed)
}

// Unsupported refuses a property of the contract that this build does not implement.
func Unsupported(field, value, instead, allowed string) *Problem {
	return RefuseError(http.StatusNotImplemented, lb.UnsupportedValue(field, value, instead, allowed))
}

// Write replies with the problem. It calls the method Refused of the writer, if there is one.
func (p *Problem) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if notified, ok := w.(interface{ Refused(why string) }); ok {
		notified.Refused(p.Body.Message)
	}
	w.WriteHeader(p.Body.Code)
	_ = json.NewEncoder(w).Encode(p.Body) // fails only if the client has disconnected
}

// ParameterProblem converts an error of the generated code about the path or the query.
func ParameterProblem(err error) *Problem {
	var format *v1.InvalidParamFormatError
	var number *strconv.NumError
	switch {
	case errors.As(err, &format) && errors.As(format.Err, &number):
		return Invalid(format.ParamName, number.Num, "is of the wrong type", valuesOf(number))
	case errors.As(err, &format):
		p := Refuse(http.StatusBadRequest, "parameter %s is not of its form: %v", format.ParamName, format.Err)
		p.Body.Field = format.ParamName
		return p
	}
	return Refuse(http.StatusBadRequest, "%v", err)
}

// valuesOf describes the values that strconv accepts.
func valuesOf(e *strconv.NumError) string {
	switch {
	case e.Func == "ParseBool":
		return "true or false"
	case errors.Is(e, strconv.ErrRange):
		return "a smaller whole number"
	}
	return "a whole number"
}

// JSON replies 200 with a value.
func JSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
}

// Success replies 200 with the contract's text for success.
func Success(w http.ResponseWriter) { JSON(w, v1.Result{Result: "Success"}) }

// BadRequest refuses a request with an error. If the error wraps a FieldError, it uses only that.
func BadRequest(err error) *Problem {
	var fe *lb.FieldError
	if errors.As(err, &fe) {
		return RefuseError(http.StatusBadRequest, fe)
	}
	return Refuse(http.StatusBadRequest, "%v", err)
}

// RenameField returns the error under another name of its field.
func RenameField(field string, err error) error {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return err
	}
	return Renamed(field, fe)
}

// Renamed returns the error about a value under another name of its field.
func Renamed(field string, fe *lb.FieldError) *lb.FieldError {
	c := *fe
	c.Field = field
	return &c
}
