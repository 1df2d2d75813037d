package observation

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
)

// LogLevel is the level of the log, by name.
type LogLevel interface {
	String() string
	Set(word string) error
}

const logLevels = "trace, debug, info, notice, warning, error, critical, alert, emergency"

// GetParams replies with the parameters that can be changed at run time.
func (a *API) GetParams(w http.ResponseWriter, _ *http.Request) {
	rest.JSON(w, v1.Params{LogLevel: a.LogLevel.String()})
}

// SetParams changes parameters until the daemon ends.
func (a *API) SetParams(w http.ResponseWriter, r *http.Request) {
	params, p := rest.Decode(a.Reader, w, r, rest.Unmarshal[v1.Params])
	if p != nil {
		p.Write(w)
		return
	}
	before := a.LogLevel.String()
	if a.LogLevel.Set(params.LogLevel) != nil {
		rest.RefuseField(http.StatusBadRequest, "logLevel", params.LogLevel, "is not a level", logLevels).Write(w)
		return
	}
	a.Log.Warn("the level of the log was changed", "before", before, "now", a.LogLevel.String())
	rest.Success(w)
}
