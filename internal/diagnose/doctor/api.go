package doctor

import v1 "loxilb/api/v1"

// ToAPI converts a diagnosis to its form in the API.
func ToAPI(findings []Finding, made []Examined) v1.Diagnosis {
	out := v1.Diagnosis{Findings: []v1.DoctorFinding{}, Checks: []v1.DoctorCheck{}}
	for i := range findings {
		f := &findings[i]
		out.Findings = append(out.Findings, v1.DoctorFinding{
			Id: f.ID(), Check: f.Check, What: f.What, Sure: string(f.Sure), Why: f.Why, Command: f.Command, Fixable: f.Fix != nil,
		})
	}
	for _, c := range made {
		one := v1.DoctorCheck{Name: c.Name, Findings: c.Findings}
		if c.Unknown != nil {
			one.Unknown = c.Unknown.Error()
		}
		out.Checks = append(out.Checks, one)
	}
	return out
}
