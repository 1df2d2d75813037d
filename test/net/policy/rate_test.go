package policy_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/await"
	"loxilb/test/net/rig"
)

// TestRateOfRealTraffic checks policers of 50 Mbit/s, with one rate or two, with iperf3. UDP at
// twice the rate gets the rate within 5 %. TCP, which slows down after losses, gets at most the
// rate and does not stall. The test divides the bytes by the time between two reads of the policer,
// so a busy machine does not affect the result.
func TestRateOfRealTraffic(t *testing.T) {
	r := rig.Shared(t)
	const byteRate, burst = 50e6 / 8, 625_000
	r.Loxicmd("create lb %s --udp=5201:5201 --tcp=5201:5201 --name=perf --endpoints=31.31.31.1:1", rig.VIP4)
	for name, kind := range map[string]string{"srTCM": "--rate=0:50 --pol-type=1 --block-size=312500:312500", "trTCM": "--rate=50:20 --block-size=625000:100000"} {
		for _, c := range []struct {
			how   []string
			least float64 // share of the rate
		}{{[]string{"-u", "-b", "100M", "-l", "1400"}, 0.95}, {nil, 0.2}} {
			how := c.how
			r.Loxicmd("create policy %s %s --target=perf:service", name, kind)
			passed := func() uint64 {
				t.Helper()
				var list v1.PolicyList
				if err := json.Unmarshal([]byte(r.Loxicmd("get policy -o json")), &list); err != nil || len(list.PolAttr) != 1 {
					t.Fatalf("got %+v, %v, want no error, 1 element in list.PolAttr", list, err)
				}
				return list.PolAttr[0].Green.Bytes + list.PolAttr[0].Yellow.Bytes
			}
			served, sent := make(chan error, 1), make(chan error, 1)
			go func() { _, err := r.Endpoints[0].Run("timeout", "20", "iperf3", "-s", "-1"); served <- err }()
			go func() {
				var err error
				for range 50 { // until the server listens
					if _, err = r.Client.Run(append([]string{"timeout", "20", "iperf3", "-c", rig.VIP4, "-t", "3"}, how...)...); err == nil {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				sent <- err
			}()
			await.NoError(t, rig.Patience, func() error { // until the burst is used up
				if n := passed(); n < 2*burst {
					return fmt.Errorf("%s %v: %d bytes have passed", name, how, n)
				}
				return nil
			})
			t1 := time.Now()
			before := passed()
			t2 := time.Now()
			time.Sleep(1500 * time.Millisecond)
			t3 := time.Now()
			n := float64(passed() - before)
			t4 := time.Now()
			if least, most := byteRate*t3.Sub(t2).Seconds()*c.least, byteRate*t4.Sub(t1).Seconds()*1.05; n < least || n > most {
				t.Errorf("%s %v: %.0f bytes in %v to %v, want %.0f to %.0f", name, how, n, t3.Sub(t2), t4.Sub(t1), least, most)
			}
			if err1, err2 := <-sent, <-served; err1 != nil || err2 != nil {
				t.Errorf("got %s %v: %v, %v, want no error", name, how, err1, err2)
			}
			r.Loxicmd("delete policy %s", name)
		}
	}
}
