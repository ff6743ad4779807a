// Clients that do random operations on ACL servers, and checks of what the servers responded: linearizability of each record,
// read-your-writes, wake-ups of blocking queries, indexes. `tests/histories` starts it, starts and stops the servers meanwhile,
// and tells it of each fault by a line on standard input: `begin NAME`, `end NAME`. The end of the input ends the run.
//
//	histories -servers http://127.0.0.1:8500 -token-file FILE -out report.json
//	histories -replay report.json       checks the histories of a report's anomalies again
//	histories -self-test                checks the checks, with histories that are wrong
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"
)

// run is what the clients of a run share.
type run struct {
	servers []string
	token   string
	seed    int64
	start   time.Time
	known   *registry
	limit   time.Duration
}

// report of a run.
type report struct {
	Operations map[string]int `json:"operations"`
	Outcomes   map[string]int `json:"outcomes"`
	Statuses   map[int]int    `json:"statuses"`
	Unknown    int            `json:"unknown"`
	Seconds    float64        `json:"seconds"`
	Faults     []fault        `json:"faults"`
	Checks     map[string]int `json:"checks"`
	// LowerElsewhere counts reads whose index was lower than one that another server had returned before.
	LowerElsewhere int       `json:"lower_elsewhere"`
	Undecided      int       `json:"undecided"`
	Anomalies      []anomaly `json:"anomalies"`
	// All operations, with -all.
	All []operation `json:"all,omitempty"`
}

var (
	servers   = flag.String("servers", "", "addresses of the servers, with commas")
	tokenFile = flag.String("token-file", "", "file with a token that has all rights")
	clients   = flag.Int("clients", 16, "clients; a quarter of them does blocking queries")
	seed      = flag.Int64("seed", 1, "seed of the random operations")
	limit     = flag.Duration("limit", 15*time.Second, "time limit of a request")
	bound     = flag.Duration("bound", 5*time.Second, "time for a wake-up")
	recovery  = flag.Duration("recovery", 5*time.Second, "time that does not count for a wake-up after a fault")
	checking  = flag.Duration("checking", time.Minute, "time for the linearizability of a record")
	out       = flag.String("out", "", "file for the report")
	keepAll   = flag.Bool("all", false, "put all operations into the report")
	replay    = flag.String("replay", "", "report to check again")
	selfTest  = flag.Bool("self-test", false, "check the checks")
)

func main() {
	flag.Parse()
	switch {
	case *selfTest:
		testChecks()
	case *replay != "":
		again()
	default:
		token, err := os.ReadFile(*tokenFile)
		check(err)
		run := &run{
			servers: strings.Split(*servers, ","), token: strings.TrimSpace(string(token)), seed: *seed, start: time.Now(),
			known: newRegistry(), limit: *limit,
		}
		all, faults := run.record(*clients)
		found := judge(all, faults)
		found.Anomalies = append(found.Anomalies, run.known.anomalies...)
		found.Seconds = time.Since(run.start).Seconds()
		found.write(*out)
	}
}

// record lets the clients work until the input ends, and returns what they did and what was done to the servers.
func (run *run) record(clients int) (all []operation, faults []fault) {
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	workers := make([]*worker, clients)
	for number := range workers {
		workers[number] = newWorker(run, number)
		group.Add(1)
		go func() {
			defer group.Done()
			if number%4 == 3 {
				workers[number].watch(ctx)
			} else {
				workers[number].change(ctx)
			}
		}()
	}
	open := map[string]int{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		now := int64(time.Since(run.start))
		word, name, _ := strings.Cut(lines.Text(), " ")
		if word == "begin" {
			open[name] = len(faults)
			faults = append(faults, fault{name, now, never})
		} else if place, isOpen := open[name]; isOpen {
			faults[place].End = now
			delete(open, name)
		}
	}
	stop()
	group.Wait()
	for _, work := range workers {
		all = append(all, work.log...)
	}
	return byCall(all), faults
}

// judge checks a history.
func judge(all []operation, faults []fault) *report {
	found := &report{
		Operations: map[string]int{}, Outcomes: map[string]int{}, Statuses: map[int]int{}, Checks: map[string]int{}, Faults: faults,
	}
	for _, one := range all {
		name := one.Action
		if one.Since > 0 {
			name = "blocking " + name
		}
		found.Operations[name]++
		found.Outcomes[one.Outcome]++
		found.Statuses[one.Status]++
		if one.Outcome == unknown {
			found.Unknown++
		}
	}
	anomalies, undecided := checkLinearizable(all, *checking)
	found.Checks["records"], found.Undecided = len(histories(all)), undecided
	own, checks := checkOwnWrites(all)
	found.Checks["reads after own writes"] = checks
	indexes, checks, lower := checkIndexes(all)
	found.Checks["indexes"], found.LowerElsewhere = checks, lower
	wakeUps, counts := checkWakeUps(all, faults, *bound, *recovery)
	maps.Copy(found.Checks, counts)
	stale, checks := checkStale(all)
	found.Checks["stale reads"] = checks
	for _, more := range [][]anomaly{own, indexes, wakeUps, stale, checkResponses(all)} {
		anomalies = append(anomalies, more...)
	}
	found.Anomalies = append([]anomaly{}, anomalies...)
	if *keepAll {
		found.All = all
	}
	return found
}

// write writes the report, and prints a line.
func (found *report) write(path string) {
	text, err := json.MarshalIndent(found, "", " ")
	check(err)
	check(os.WriteFile(path, append(text, '\n'), 0o600))
	fmt.Printf("%d anomalies, %d undecided\n", len(found.Anomalies), found.Undecided)
	for place, one := range found.Anomalies {
		if place < 20 {
			fmt.Printf("anomaly: %s: %s\n", one.Check, one.Text)
		}
	}
	if len(found.Anomalies) > 0 {
		os.Exit(1)
	}
}

// again checks the histories of a report again, and prints them.
func again() {
	text, err := os.ReadFile(*replay)
	check(err)
	var old report
	check(json.Unmarshal(text, &old))
	for _, one := range old.Anomalies {
		fmt.Printf("%s: %s\n", one.Check, one.Text)
		for _, one := range one.History {
			line, err := json.Marshal(one)
			check(err)
			fmt.Printf("  %s\n", line)
		}
		for _, again := range judge(one.History, old.Faults).Anomalies {
			fmt.Printf("  again: %s: %s\n", again.Check, again.Text)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "histories:", err)
		os.Exit(2)
	}
}
