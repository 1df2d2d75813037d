package observation

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/diagnose/verify"
	"loxilb/internal/lb"
)

// GetVerify compares the configuration with the kernel.
func (a *API) GetVerify(w http.ResponseWriter, r *http.Request, p v1.GetVerifyParams) {
	a.verify(w, r, verify.Options{Whole: p.Whole})
}

// Repair verifies, and applies differing objects again.
func (a *API) Repair(w http.ResponseWriter, r *http.Request, p v1.RepairParams) {
	a.verify(w, r, verify.Options{Whole: p.Whole, Repair: true})
}

func (a *API) verify(w http.ResponseWriter, r *http.Request, o verify.Options) {
	rest.JSON(w, verified(a.Verifier.Run(r.Context(), o)))
}

// repairHint is the hint for a row that differs from the daemon's.
const repairHint = "loxicmd verify --repair"

func verified(r verify.Report) v1.Verified {
	out := v1.Verified{
		Verdict: string(r.Verdict), Seconds: r.Took.Seconds(), Passed: r.Passed, Tables: []v1.VerifiedTable{}, Differences: []v1.TableDifference{},
	}
	for _, t := range r.Tables {
		one := v1.VerifiedTable{Name: t.Name, Rows: t.Rows, Differences: t.Differences, Unsettled: t.Unsettled}
		if t.Err != nil {
			one.Error = t.Err.Error()
		}
		out.Tables = append(out.Tables, one)
	}
	for _, f := range r.Findings {
		one := v1.TableDifference{Table: f.Table, Row: f.Row, What: f.What, Mend: f.Fix, Repaired: f.Repaired}
		if one.Mend == "" {
			one.Mend = repairHint
		}
		out.Differences = append(out.Differences, one)
	}
	return out
}

// GetDoctor checks the machine for problems. One examination runs at a time, as each needs seconds
// of CPU time and megabytes with many services. Clients that have disconnected meanwhile need none.
func (a *API) GetDoctor(w http.ResponseWriter, r *http.Request) {
	select {
	case a.examining <- struct{}{}:
		defer func() { <-a.examining }()
	case <-r.Context().Done():
		return
	}
	rest.JSON(w, doctor.ToAPI(a.Doctor().Examine()))
}

// FixFinding fixes a finding.
func (a *API) FixFinding(w http.ResponseWriter, _ *http.Request, p v1.FixFindingParams) {
	done, err := a.Doctor().Fix(p.Finding)
	if err != nil {
		rest.RefuseError(http.StatusConflict, lb.NewFieldError("finding", p.Finding, "is not fixed: "+err.Error(), "the id of a finding that is fixable")).Write(w)
		return
	}
	rest.JSON(w, v1.Fixed{Done: done})
}
