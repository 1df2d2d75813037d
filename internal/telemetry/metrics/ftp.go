package metrics

// ftpFamilies are the metrics of FTP data connections.
func ftpFamilies() []family {
	return []family{
		number("loxilb_ftp_expected_connections", Gauge, "Data connections of FTP that control connections have announced within 30 s, and that are not opened yet.",
			func(v *view) float64 { return float64(v.ftp.Expected) }),
		{Metric{"loxilb_ftp_refused_total", Counter, []string{"reason"}, "Data connections of FTP that were announced and are not expected, since the daemon started: " +
			"64 others of the client's address are (client), or no port of the VIP was free (port). " +
			"Control connections that changed to TLS, so all of theirs are not (tls).", Always}, func(v *view, p *page) {
			for _, reason := range sorted(v.ftp.Refused) {
				p.add(float64(v.ftp.Refused[reason]), reason)
			}
		}},
	}
}
