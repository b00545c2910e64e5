"""A server of the S3 protocol (moto's) that counts its requests.

It prints its port; ``GET /requests`` returns the counts.

python s3_server.py
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def main() -> None:
    """Serve until the process is killed."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store, counts = DomainDispatcherApplication(create_backend_app), Counter[str]()

    def counted(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/requests":
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(counts).encode()]
        counts[environ["REQUEST_METHOD"]] += 1
        return store(environ, start)

    server = make_server("127.0.0.1", 0, counted, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
