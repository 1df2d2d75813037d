package config

// How detailed metrics are.
const (
	detailService  = "service"
	detailEndpoint = "endpoint"
)

func (f *flags) checkMetrics() (Metrics, error) {
	if f.metricsDetail != detailService && f.metricsDetail != detailEndpoint {
		return Metrics{}, &Error{"--metrics-detail", f.metricsDetail, "is unknown (allowed: service, endpoint)"}
	}
	return Metrics{Endpoints: f.metricsDetail == detailEndpoint}, nil
}
