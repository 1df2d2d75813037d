// Package answer writes answers of the API: a value, or why a request is refused.
package answer

import (
	"encoding/json"
	"errors"
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// JSON answers 200 with a value.
func JSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

// Refusal is why a request is refused. Its body is the answer.
type Refusal struct{ Body v1.Error }

// Refuse makes a refusal of an error. That about a value tells its parts, and is 501 if this build
// does not have what the value asks for.
func Refuse(code int, err error) *Refusal {
	r := &Refusal{v1.Error{Code: code, Message: err.Error(), Result: err.Error()}}
	var field *lb.FieldError
	if !errors.As(err, &field) {
		return r
	}
	if field.NotBuilt {
		r.Body.Code = http.StatusNotImplemented
	}
	r.Body.Field, r.Body.Value, r.Body.Reason, r.Body.Allowed = field.Field, field.Value, field.Reason, field.Allowed
	return r
}

// Invalid refuses a value of the request. reason is a predicate: "is zero".
func Invalid(field, value, reason, allowed string) *Refusal {
	return Refuse(http.StatusBadRequest, lb.NewFieldError(field, value, reason, allowed))
}

// Missing refuses a value that names what does not exist.
func Missing(field, value, allowed string) *Refusal {
	return Refuse(http.StatusNotFound, lb.NewFieldError(field, value, "does not exist", allowed))
}

// Write answers with the refusal. A writer that keeps an account of answers is told of it.
func (r *Refusal) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if account, ok := w.(interface{ Refused(why string) }); ok {
		account.Refused(r.Body.Message)
	}
	w.WriteHeader(r.Body.Code)
	_ = json.NewEncoder(w).Encode(r.Body) // the client is gone if this fails
}
