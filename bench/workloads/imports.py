"""Importing a heavy stack: many shared libraries loaded, many code objects seen for the first time."""

import asyncio
import decimal
import email.mime.text
import json
import sqlite3
import unittest.mock
import xml.etree.ElementTree

import numpy
import pandas
