-- The job of traces/sqlite.qtrace: two tables, an index, joins and aggregates, in memory. No call of random(): the
-- numbers come from a multiplication, so that each run does the same work. Rows are wide (some 330 bytes): many pages
-- for few instructions.
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, region INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER, note TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
  INSERT INTO customers SELECT i, printf('customer %06d', i * 7919 % 1000003), i * 31 % 40 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 13000)
  INSERT INTO orders SELECT i, i * 48271 % 1999 + 1, i * 69621 % 100003,
    printf('order %d, packed in %.*c', i, 200 + i * 37 % 200, 'x') FROM n;
COMMIT;
CREATE INDEX orders_by_customer ON orders (customer, amount);
-- A walk through the index: for each customer its largest order, whose note lies anywhere in the table.
SELECT count(*), sum(length(note)) FROM customers JOIN orders
  ON orders.id = (SELECT id FROM orders AS o WHERE o.customer = customers.id ORDER BY amount DESC LIMIT 1);
-- A scan of the table that looks up the customer of each order.
SELECT region, count(*), sum(amount) FROM orders JOIN customers ON customers.id = orders.customer
  GROUP BY region ORDER BY 3 DESC LIMIT 5;
-- Scattered updates.
UPDATE orders SET amount = amount + 1 WHERE id * 7919 % 10 = 0;
SELECT sum(amount) FROM orders;
