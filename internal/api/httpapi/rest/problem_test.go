package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// account is a response writer that records refusals.
type account struct {
	*httptest.ResponseRecorder
	why string
}

func (a *account) Refused(why string) { a.why = why }

// TestRefusal checks that a refused value has all its parts, that an unsupported one gives 501, and
// that the audit log gets the reason.
func TestRefusal(t *testing.T) {
	t.Parallel()
	missing := lb.UnsupportedValue("protocol", "sctp", "let another one do it", "tcp")
	for name, tc := range map[string]struct {
		refusal *Problem
		want    v1.Error
	}{
		"sentence": {RefuseError(503, errors.New("later")), v1.Error{Code: 503, Message: "later", Result: "later"}},
		"value": {Invalid("limit", "-1", "is negative", "0 or more"), v1.Error{
			Code: 400, Message: `limit "-1" is negative (allowed: 0 or more)`, Field: "limit", Value: "-1", Reason: "is negative", Allowed: "0 or more",
		}},
		"in another error": {
			RefuseError(409, fmt.Errorf("x: %w", lb.NewFieldError("a", "b", "is c", ""))),
			v1.Error{Code: 409, Message: `x: a "b" is c`, Field: "a", Value: "b", Reason: "is c"},
		},
		"missing":   {Missing("service", "web", ""), v1.Error{Code: 404, Message: `service "web" does not exist`, Field: "service", Value: "web", Reason: "does not exist"}},
		"not built": {RefuseError(400, missing), v1.Error{Code: 501, Message: missing.Error(), Field: "protocol", Value: "sctp"}},
	} {
		w := &account{ResponseRecorder: httptest.NewRecorder()}
		tc.refusal.Write(w)
		var got v1.Error
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		tc.want.Result = tc.want.Message
		if name == "not built" { // the sentence is that of package lb
			got.Reason, got.Allowed = "", ""
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || w.Code != tc.want.Code || w.why != tc.want.Message {
			t.Errorf("%s: %d, account %q: %s", name, w.Code, w.why, diff)
		}
	}
}

// TestParameterProblem checks that a parameter of a wrong type is refused like every other value,
// without the Go library's wording.
func TestParameterProblem(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"maybe": `failed "maybe" is of the wrong type (allowed: true or false)`,
		"":      `failed "" is of the wrong type (allowed: true or false)`,
	} {
		_, err := strconv.ParseBool(value)
		p := ParameterProblem(&v1.InvalidParamFormatError{ParamName: "failed", Err: fmt.Errorf("error binding string parameter: %w", err)})
		if p.Body.Message != want || p.Body.Code != 400 || p.Body.Field != "failed" || p.Body.Value != value {
			t.Errorf(`got %+v, want code 400 about field "failed" with value %q and message %q`, p.Body, value, want)
		}
	}
	for value, want := range map[string]string{
		"1.5":                  `limit "1.5" is of the wrong type (allowed: a whole number)`,
		"99999999999999999999": `limit "99999999999999999999" is of the wrong type (allowed: a smaller whole number)`,
	} {
		_, err := strconv.ParseInt(value, 10, 64)
		if p := ParameterProblem(&v1.InvalidParamFormatError{ParamName: "limit", Err: err}); p.Body.Message != want {
			t.Errorf("got %+v, want message %q", p.Body, want)
		}
	}
	p := ParameterProblem(&v1.InvalidParamFormatError{ParamName: "limit", Err: errors.New("multiple values for single value parameter 'limit'")})
	if want := "parameter limit is not of its form: multiple values for single value parameter 'limit'"; p.Body.Message != want {
		t.Errorf("got %v, want %v", p.Body.Message, want)
	}
}
