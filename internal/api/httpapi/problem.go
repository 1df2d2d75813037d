package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/answer"
	"loxilb/internal/control/status"
	"loxilb/internal/lb"
)

// existsResult is what clients of the contract look for when a service exists already.
const existsResult = "lbrule-exists error"

// problem is a request that was refused. Its JSON is the answer.
type problem struct {
	body   v1.Error
	stored uint64        // the revision of a change that is stored, and not applied
	failed *status.Error // why it is not, if it was tried
	// known makes a body without the properties that are not known, if one of them is what is
	// refused.
	known func([]byte) ([]byte, []string)
}

func (p *problem) Error() string { return p.body.Message }

// refuse makes a problem of one sentence.
func refuse(code int, format string, args ...any) *problem {
	s := fmt.Sprintf(format, args...)
	return &problem{body: v1.Error{Code: code, Message: s, Result: s}}
}

// say replaces the sentence.
func (p *problem) say(s string) { p.body.Message, p.body.Result = s, s }

// refuseField makes a problem of a value. reason is a predicate: "is zero".
func refuseField(code int, field, value, reason, allowed string) *problem {
	return fieldProblem(code, lb.NewFieldError(field, value, reason, allowed))
}

// fieldProblem is about a value, with code unless it asks for what this build does not have.
func fieldProblem(code int, fe *lb.FieldError) *problem {
	return &problem{body: answer.Refuse(code, fe).Body}
}

// notBuilt refuses what a property asks for, which the contract has and this build does not.
func notBuilt(field, value, instead, allowed string) *problem {
	return fieldProblem(http.StatusNotImplemented, lb.NotBuilt(field, value, instead, allowed))
}

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter) { (&answer.Refusal{Body: p.body}).Write(w) }

// parameterProblem is for what the generated code found in the path or the query.
func parameterProblem(err error) *problem {
	var format *v1.InvalidParamFormatError
	if errors.As(err, &format) {
		p := refuse(http.StatusBadRequest, "parameter %s is not of its form: %v", format.ParamName, format.Err)
		p.body.Field = format.ParamName
		return p
	}
	return refuse(http.StatusBadRequest, "%v", err)
}

// writeJSON answers 200 with a value.
func writeJSON(w http.ResponseWriter, v any) { answer.JSON(w, v) }

func writeSuccess(w http.ResponseWriter) { writeJSON(w, v1.Result{Result: "Success"}) }
