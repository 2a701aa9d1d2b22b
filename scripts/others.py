"""Programs that nobody had looked at when replays were written, for `scripts/programs --others`: each with what it works on."""
import os
import shutil
import subprocess

# Each is text that says all a program does; those of a language that is compiled are.
THREADS_PY = "import threading\nr = []\ndef w(k):\n    for i in range(40):\n        r.append(len({j: str(j * k) for j in range(30000)}))\n" \
    "ts = [threading.Thread(target=w, args=(k,)) for k in range(4)]\n[t.start() for t in ts]; [t.join() for t in ts]; print(sum(r))\n"
THREADS_PL = 'use threads; my @t = map { my $k = $_; threads->create(sub { my $s = 0; for (1..8) { my %h; $h{$_ * $k} = "x$_" for 1..40000; ' \
    '$s += keys %h } $s }) } 1..6; my $s = 0; $s += $_->join for @t; print "$s\\n";'
NUMPY = "import numpy as np\na = np.random.default_rng(1).random((900, 900))\nfor i in range(12):\n    b = a @ a; c = np.sort(b, axis=0); d = np.linalg.solve(a, b)\n" \
    "print(d.sum())\n"
WORKERS = "const { Worker, isMainThread } = require('worker_threads');\nif (isMainThread) { for (let k = 0; k < 4; k++) new Worker(__filename) } else " \
    "{ for (let r = 0; r < 25; r++) { const a = []; for (let i = 0; i < 60000; i++) a.push({ i, t: 'x' + i }) } }\n"
OCTAVE = "a = rand(700); for i = 1:8, b = a * a; c = a \\ b; end; disp(sum(c(:)) > 0)"
SBCL = "(print (reduce #'+ (mapcar #'sb-thread:join-thread (loop repeat 4 collect (sb-thread:make-thread (lambda () (let ((h (make-hash-table))) " \
    "(dotimes (i 300000) (setf (gethash i h) (format nil \"~a\" i))) (hash-table-count h))))))))"
ERLANG = "-module(par).\n-export([main/0]).\nmain() -> S = self(), [spawn(fun() -> S ! {K, lists:sum([erlang:phash2(lists:seq(1, X rem 300)) || " \
    "X <- lists:seq(1, 6000)])} end) || K <- lists:seq(1, 16)],\n" \
    "    io:format(\"~p~n\", [lists:sum([receive {K, V} -> V end || K <- lists:seq(1, 16)])]), halt().\n"
MONO = "using System; using System.Threading; using System.Collections.Generic;\nclass P { static void Main() { var ts = new List<Thread>(); long total = 0;\n" \
    "for (int k = 0; k < 4; k++) { var t = new Thread(() => { long s = 0; for (int r = 0; r < 60; r++) { var d = new Dictionary<int, string>();\n" \
    "for (int i = 0; i < 20000; i++) d[i * 7] = \"x\" + i; foreach (var v in d.Values) s += v.Length; } Interlocked.Add(ref total, s); });\n" \
    "ts.Add(t); t.Start(); } foreach (var t in ts) t.Join(); Console.WriteLine(total); } }\n"
JAVA = "import java.util.stream.*;\npublic class Gc { public static void main(String[] a) { long s = 0; for (int r = 0; r < 12; r++) { final int q = r;\n" \
    "s += IntStream.range(0, 200000).parallel().mapToObj(i -> \"x\" + i * q).collect(Collectors.toList()).size(); } System.out.println(s); } }\n"
HASKELL = "module M%d where\nimport qualified Data.Map as M\nimport Data.List\ndata T%d = A Int | B [T%d] | C (M.Map Int T%d) deriving (Show, Eq, Ord, Read)\n" \
    "f :: Int -> M.Map Int Int\nf n = foldl' (\\m x -> M.insertWith (+) (x `mod` 97) x m) M.empty [1..n]\n"
RUST = "pub mod m%d { pub fn f(x: u64) -> String { let mut v: Vec<u64> = (0..x).collect(); v.sort(); " \
    "format!(\"{:?}\", v.iter().map(|y| y * %d).collect::<Vec<_>>()) } }\n"
MEMCACHED = """memcached -u nobody -p 21211 -t 2 -m 64 & S=$!; sleep 0.3; python3 - <<'P'
import socket, threading
def w(k):
    s = socket.create_connection(("127.0.0.1", 21211)); f = s.makefile("rb")
    for i in range(6000):
        v = b"x" * (i % 3000); s.sendall(b"set k%d_%d 0 0 %d\\r\\n%s\\r\\n" % (k, i % 500, len(v), v)); f.readline()
ts = [threading.Thread(target=w, args=(k,)) for k in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
P
kill $S; wait $S"""
REDIS = """redis-server --port 26379 --io-threads 2 --save "" --appendonly no >/dev/null & S=$!; sleep 0.3
redis-benchmark -p 26379 -q -n 40000 -c 20 -t set,get,lpush --threads 2 >/dev/null; redis-cli -p 26379 flushall async >/dev/null
redis-cli -p 26379 debug populate 200000 >/dev/null; redis-cli -p 26379 flushall async >/dev/null; sleep 0.3; kill $S; wait $S"""
MARIADB = """D=$PWD/mariadb; [ -d $D ] || mariadb-install-db --user=root --datadir=$D --auth-root-authentication-method=normal >/dev/null 2>&1
mariadbd --no-defaults --user=root --datadir=$D --socket=$D/s --skip-networking --innodb-buffer-pool-size=64M & S=$!
for i in 1 2 3 4 5 6 7 8 9 10; do mysqladmin --no-defaults -S $D/s ping >/dev/null 2>&1 && break; sleep 0.3; done
mysqlslap --no-defaults -S $D/s -a -c 6 --number-of-queries 1500 --auto-generate-sql-load-type=mixed >/dev/null 2>&1
mysqladmin --no-defaults -S $D/s shutdown; wait $S"""
NGINX = """mkdir -p nginx/logs; head -c 200000 /dev/urandom > nginx/f
printf "daemon off; worker_processes 2; pid $PWD/nginx/pid; events{} http{access_log off; server{listen 28080; root $PWD/nginx; aio threads;}}" > nginx/c
nginx -e /dev/null -c $PWD/nginx/c & S=$!; sleep 0.3; wrk -t2 -c16 -d2 http://127.0.0.1:28080/f >/dev/null; kill $S; wait $S"""


def commands(root, here, lines):
    """Each program's name, command and environment, as those of `scripts/programs`; what it works on comes to be below `here`."""
    os.makedirs(here, exist_ok=True)
    tool = shutil.which

    def text(name, content):
        path = os.path.join(here, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(content)
        return path

    def made(name, compiler, *words):
        """What a compiler makes once, or nothing where there is none."""
        path = os.path.join(here, name)
        if not os.path.exists(path) and tool(compiler):
            subprocess.run([compiler, *words], cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return path if os.path.exists(path) else None

    def shell(script, *needs):
        return ["sh", "-c", script] if all(tool(need) for need in needs) else None

    out = lambda name: os.path.join(here, name)
    modules = ["M%d" % nth for nth in range(1, 7)]
    for nth in range(1, 7):
        text("haskell/M%d.hs" % nth, HASKELL % ((nth,) * 4))
    text("haskell/Main.hs", "import %s\nmain = print 1\n" % "\nimport ".join(modules))
    text("crate/Cargo.toml", '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n')
    text("crate/src/main.rs", "".join(RUST % (nth, nth) for nth in range(60)) + 'fn main() { println!("{}", m1::f(10).len()); }\n')
    for name, content in [("par.erl", ERLANG), ("Par.cs", MONO), ("Gc.java", JAVA)]:
        text(name, content)
    erlang, mono, java = made("par.beam", "erlc", "par.erl"), made("Par.exe", "mcs", "Par.cs"), made("Gc.class", "javac", "Gc.java")
    video = "testsrc2=size=640x360:rate=30:duration=4"
    yield "ghc -j2", ["ghc", "-v0", "-O", "-threaded", "-fforce-recomp", "-j2", "-i" + out("haskell"), "-outputdir", out("haskell/out"), "-o",
                      out("haskell/main"), out("haskell/Main.hs")], {}
    yield "erlang", erlang and ["erl", "+S", "2", "-noshell", "-pa", here, "-s", "par", "main"], {}
    yield "mono", mono and ["mono", mono], {}
    yield "perl", ["perl", text("threads.pl", THREADS_PL)], {}
    yield "pypy", ["pypy3", text("threads.py", THREADS_PY)], {}
    yield "sbcl", ["sbcl", "--noinform", "--non-interactive", "--eval", SBCL], {}
    yield "lbzip2", ["lbzip2", "-n2", "-k", "-c", lines], {}
    yield "pbzip2", ["pbzip2", "-p2", "-k", "-c", lines], {}
    yield "ffmpeg", ["ffmpeg", "-y", "-loglevel", "error", "-f", "lavfi", "-i", video, "-threads", "2", "-c:v", "libx264", out("x.mp4")], {}
    yield "git grep", ["git", "-C", root, "grep", "--threads", "2", "-c", "fn [a-z]*_[a-z]*(", "HEAD"], {}
    yield "cargo", shell("cd %s && rm -rf target && exec cargo build --offline --release -q --target-dir target" % out("crate"), "cargo"), {}
    yield "numpy", ["/usr/bin/python3", text("matrices.py", NUMPY)], {}
    yield "octave", ["octave-cli", "--eval", OCTAVE], {}
    for name, collector in [("java streams", "Parallel"), ("java G1", "G1")]:
        yield name, java and ["java", "-XX:+Use%sGC" % collector, "-Xmx200m", "-cp", here, "Gc"], {}
    yield "node workers", ["node", text("workers.js", WORKERS)], {}
    yield "memcached", shell(MEMCACHED, "memcached"), {}
    yield "redis", shell(REDIS, "redis-server", "redis-benchmark"), {}
    yield "mariadb", shell(MARIADB, "mariadbd", "mysqlslap"), {}
    yield "nginx", shell(NGINX, "nginx", "wrk"), {}
