package config

// The values of --metrics-detail.
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
